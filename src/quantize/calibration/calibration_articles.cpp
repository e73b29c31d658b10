// Articles as an encyclopaedia has them, for calibration; most places and people are invented.
#include "quantize/calibration/calibration_text.h"

namespace leq {

// clang-format off
std::string_view calibration_articles() {
  return R"text(= Harrow Point Lighthouse =

Harrow Point Lighthouse is a disused lighthouse on the northern coast of the island of Selby, at the entrance to the Bay of Corran. It was built between 1841 and 1844 to the design of the engineer Thomas Arkwell, and replaced an open coal fire that had burned on the headland since the late 17th century. The tower is 31 metres high, built of local granite, and stands on a platform of rock about 12 metres above the high water mark. It was painted white with a single red band until 1903, when the band was removed because it could be mistaken for that of the lightship at Denholm Sands, 14 miles to the east.

The first light was produced by 21 oil lamps set in silvered reflectors. In 1868 they were replaced by a large lens made in Paris, which floated in a bath of mercury and was turned by a clockwork mechanism that had to be wound every four hours. The lens gave one white flash every ten seconds and could be seen for 19 nautical miles in clear weather. A fog signal, driven by compressed air, was added in 1887 after the loss of the steamer Antrim Castle, in which 46 people died. The station was connected to the electricity supply in 1954, and the last keepers left in March 1986. The light was switched off in 2005, following a review which found that most ships no longer depended on it.

The buildings around the tower were sold to a local trust in 2009 for a price of one pound. After repairs which cost about 640,000 pounds, most of which came from the national lottery, they were opened as a museum and a small hotel. About 18,000 people visit the station each year. The mercury was removed during the repairs, and the lens now turns on steel rollers on summer evenings, although it is no longer lit.

= 1963 Danfield Rovers season =

The 1963–64 season was the 58th in the history of Danfield Rovers Football Club, and their fourth in a row in the Second Division. Under the manager Arthur Penhale, who had been appointed in February of the previous season, the team finished in ninth place, with 42 points from 42 matches. They reached the fifth round of the cup, in which they lost 3–1 to Leeming Town after a replay.

Rovers began the season with three victories, but won only two of the next eleven matches and were in 19th place by the end of November. Penhale then changed the formation of the team and brought in two young players from the reserves, the winger Colin Marsh and the goalkeeper David Oakes. Marsh scored in each of his first four matches and ended the season as the club's second best goalscorer, with 13 goals, behind only the captain, Jack Tilley, who scored 22. Between Boxing Day and Easter the team lost once. The largest attendance at the Vale Road ground was 24,310, for the match against Leeming Town on 15 February, and the lowest was 6,204, for the visit of Cranmoor United in heavy snow.

The season is remembered chiefly for the cup match against Hartwell City of the First Division, which Rovers won 4–2 after being two goals behind at half time. The match was the first at the ground to be shown on television, in a recording of 25 minutes on the same evening. "I told them nothing at half time that they did not know," said Penhale later. "I only told them that it was raining harder on the other side."

= Common pond lily =

The common pond lily is a species of water plant in the family Nymphaeaceae. It grows in still or slowly moving fresh water up to three metres deep, in most of Europe and in parts of western Asia and North Africa. The leaves are of two kinds. Those that float are leathery, oval and up to 40 centimetres long, with a deep notch where the stalk is attached; those under water are thin, pale green and wavy like lettuce. The flowers, which open between June and September, are yellow, about five centimetres wide, and stand a little above the surface on strong stalks. They have a smell like that of old wine, which attracts small flies.

The plant grows from a thick stem, or rhizome, which creeps through the mud and may be eight centimetres thick and several metres long. As there is little oxygen in the mud, air is carried down to the rhizome through channels in the leaf stalks: pressure builds up in the young leaves when they are warmed by the sun, and drives the air down, while gas from below escapes through the older leaves. In a large plant more than twenty litres of air may pass through the rhizome in a single day. The seeds are contained in a green fruit shaped like a bottle. When it is ripe it breaks open, and the seeds float for a few days before they sink.

The leaves are eaten by the larvae of several beetles and moths, and give shade and shelter to fish. Because it takes up much of the light, the plant may displace other species in small ponds. The rhizome contains poisonous substances, but has been ground to flour in times of famine after long boiling.

= Maria Velasquez Thorne =

Maria Velasquez Thorne (4 May 1872 – 19 January 1951) was a botanist, illustrator and teacher, who described more than two hundred species of mosses and whose drawings are still used in handbooks. She was born in the port of Santa Clara, the third of six children of a ship's doctor and a schoolteacher. When she was nine years old the family moved to the north, where her father took over a practice in a mining town. She later wrote that she had learned to look at mosses because nothing else grew near the mine.

She studied at the women's college of Ashby from 1890 to 1894, but was not given a degree, as the university did not award degrees to women until 1921. For eleven years she taught natural history at a girls' school, and spent her holidays walking in the mountains with a microscope which she carried in a box on her back. Her first paper, on the mosses of limestone walls, was read before the Natural History Society in 1898 by a male colleague, because women were not admitted to its meetings. In 1905 she was employed by the national museum as an assistant, at half of the salary of the man she replaced. She remained there until 1937, from 1919 as the head of the department.

Thorne's principal work, The Mosses of the Northern Hills, appeared in four volumes between 1908 and 1926. It contains 1,140 figures, all drawn by herself. According to the historian Ruth Calder, "she drew what she saw and not what she expected, which is rarer than it sounds." She never married, and lived for most of her life with her sister Elena, a painter. A genus of mosses, two schools and a crater on Venus are named after her.

= Battle of Oster Ford =

The Battle of Oster Ford was fought on 11 October 1644 between the forces of the Duke of Marrenburg and an army of the League of Seven Towns under General Hendrik van der Laan. The Duke, who had besieged the town of Oster for nine weeks, learned on 8 October that a relief army of about 11,000 men was marching from the south. He left 2,000 men in the trenches before the town and moved with the rest, some 8,500 men and 14 guns, to the only ford by which the river could be crossed.

The battle began soon after dawn, in thick fog. Van der Laan sent his cavalry across the ford in the belief that the enemy was still several miles away. The horsemen met the Duke's infantry on the far bank and were driven back into the water, where many of them drowned. A second attack, at about nine o'clock, was supported by guns on a low hill to the west, and reached the village of Little Oster before it was stopped by a charge of the Duke's own guard. Towards noon the fog lifted, and the garrison of the town, which had heard the guns, attacked the trenches and set fire to the camp. When the smoke was seen from the ford, part of the Duke's army began to withdraw without orders. By four o'clock the retreat had become general.

The League lost about 1,200 men killed and wounded, and the Duke about 3,000, of whom half were taken prisoner, together with all of his guns. The siege was not resumed. In the peace which was signed at Hallen in the following spring, the Duke gave up his claims to the river tolls. A stone cross was set up at the ford in 1744, and a bridge was built beside it in 1871.

= Route 47 =

Route 47 is a state highway which runs for 83.6 miles between the city of Fairmount and the border. It begins at an interchange with Interstate 12 in the east of Fairmount, and passes through an industrial area as a divided road with four lanes before it turns to the north at Mill Street. After crossing the Little Pine River on a steel truss bridge, the highway narrows to two lanes and runs through farmland to the town of Elder Creek, where it meets Route 9. North of the town it climbs into the Bannock Hills, with several sharp bends, and reaches its highest point, at 5,214 feet, near the entrance to the state forest. The road then follows a railway line down to the valley and ends at the customs station of Port Weller.

The road was built in sections between 1919 and 1934. The bridge over the river was destroyed by a flood in March 1936 and replaced in the following year. In 1958 the southern end was moved from the centre of Fairmount to a bypass, and the old road became Business Route 47. The department of transportation estimated in 2012 that an average of 21,400 vehicles a day used the highway in Fairmount, and 640 near the border.

= The Glass Orchard =

"The Glass Orchard" is the seventh episode of the second season of the drama series Low Tide, and the twentieth episode overall. It was written by Dana Whitlock and directed by Peter Osei, and was first broadcast on 12 November 2009. In the episode, Inspector Hale (Judith Marlowe) investigates the disappearance of a watchmaker, while her brother Sam (Owen Brandt) discovers that the house which they have inherited was never their father's to leave. The guest stars included Ruth Adeyemi and Charles Lund.

The script was based on a short story which Whitlock had published while she was a student. The orchard of the title, which appears only in the last scene, was made of about four hundred bottles hung from the branches of dead apple trees, and took the crew three days to build. It was destroyed by a storm on the night before the shooting, so that most of the bottles which are seen in the episode were added later by computer. The music in the scene was played on wine glasses by the composer, Lena Fisk.

The episode was watched by 6.8 million viewers, an increase of 400,000 over the previous week. Critics praised Marlowe's performance, although some found the story slow. Writing for the Evening Standard, Mark Pell called it "an hour of television in which nothing happens, beautifully". It was nominated for three awards and won one, for its photography.

= Tropical Storm Odette (1985) =

Tropical Storm Odette was the fifteenth named storm of the season. It formed on 23 September from a wave of low pressure which had left the coast of Africa ten days earlier, and moved to the west with little change in strength. On 26 September the storm turned to the north under the influence of a cold front, and reached its greatest strength, with winds of 65 miles per hour and a pressure of 993 millibars, at about 06:00 UTC on the following day. It passed 40 miles to the west of the island of St. Brendan, weakened over cooler water, and was absorbed by another system on 29 September.

Up to nine inches of rain fell in the mountains of the island, causing landslides which blocked the coastal road in eleven places. Two people were killed when a bus was swept from a bridge, and about 160 houses were damaged. The banana crop was almost completely lost. The damage was estimated at 12 million dollars. As the storm had been expected to pass to the east, warnings were given only six hours before the winds reached the coast, and the weather service was criticised in a report of the following year.

= Iron =

Iron is a chemical element with the symbol Fe and atomic number 26. It is a metal of the first transition series and, by mass, the most common element on Earth as a whole, forming much of the outer and inner core of the planet. In the crust it is the fourth most common element, after oxygen, silicon and aluminium. Pure iron is rarely found there, as it reacts readily with oxygen and water to give brown oxides, known as rust. Unlike the oxides of some other metals, rust takes up more space than the metal and flakes off, so that fresh surfaces are exposed to corrosion.

The pure metal is fairly soft, but becomes much harder when small amounts of carbon, between 0.002% and 2.1%, are dissolved in it. The result is steel, which may be a thousand times harder. Iron is usually produced in blast furnaces, in which the ore is reduced by coke at temperatures above 1,500 °C. The oldest objects of iron that are known were made from meteorites, which contain nickel as well; the smelting of ore began in the second millennium BC and spread slowly, because the furnaces of the time were not hot enough to melt the metal.

Iron plays an important part in the living world. It forms complexes with oxygen in haemoglobin and myoglobin, two proteins that carry and store oxygen in the blood and muscles of vertebrates. A human adult contains about four grams of iron. Its isotope 56Fe has nearly the highest binding energy for each nucleon, which is why the fusion of elements in heavy stars comes to an end when their cores have turned to iron and nickel.

= HMS Tern (1861) =

HMS Tern was a wooden screw gunboat of the Royal Navy, launched in 1861 and broken up in 1889. She was one of twelve ships of the Plover class, which were designed for service in the shallow waters of the Baltic, but were completed only after the war had ended. The ship was 38 metres long, had a displacement of 284 tons and was armed with two 68-pounder guns and two 24-pounder howitzers. Her engine of 60 horsepower gave her a speed of seven and a half knots, and she was rigged as a barquentine, as coal was expensive and difficult to obtain on distant stations.

Tern sailed for China in April 1862 and spent the next nine years on the coast and on the rivers, where she was employed against pirates and in the protection of trade. In August 1864, together with the French gunboat Alerte, she destroyed 17 junks in a bay near Swatow and released 120 prisoners. In June 1870 she was driven ashore by a typhoon, but was refloated a week later with the loss of her foremast. She returned to Sheerness in 1871, was repaired, and served as a tender to the training ship until she was sold for 810 pounds.

= Quiet Machinery =

Quiet Machinery is the third studio album by the band Northern Lines, released on 6 March 2001 by Harbour Records. It was recorded in a former weaving mill between June and October 2000, with the producer Alan Reyes, and marked a change from the guitar music of their earlier work to slower songs with strings, harmonium and the recorded sounds of looms. The singer, Kate Morrow, said that the group had grown tired of being loud: "We wanted to make a record that you had to lean towards."

The album reached number 14 in the United Kingdom and was certified gold in 2003. Two singles were taken from it, "Seven Bridges" and "The Weaver's Daughter", of which the first reached number 31. Reviews were mostly favourable. Some critics compared it with the folk music of the early 1970s, while others found it too long, at 64 minutes. The band played all of its songs in order at a series of concerts in churches in 2011, and a recording of one of them was released in the same year.

= Grey-headed marsh rat =

The grey-headed marsh rat is a rodent found in the wetlands of eastern Brazil and northern Uruguay. It was first described in 1837 from remains that had been collected in a cave, and living animals were not caught until 1912. The body is between 13 and 17 centimetres long, the tail is slightly longer, and adults weigh between 60 and 115 grams. The fur on the back is reddish brown, each hair having a dark tip, and the head is distinctly grey. The hind feet have small webs between the toes, and the animal swims well. Its diploid number of chromosomes is 56.

It lives among reeds and in flooded forest, from sea level to about 900 metres, and builds round nests of grass above the water. It is active at night and feeds on seeds, insects and small crabs. Litters of two to five young have been found from September to March. Owls are among its main predators, and most of what is known of its range comes from bones in their pellets. The species is not considered to be in danger, although much of the wetland on the coast has been drained since 1950.

= Parliament of Aldenia =

The Parliament of Aldenia is the national legislature of the Republic of Aldenia. It has two chambers: the House of Deputies, with 180 members who are elected for four years by proportional representation in 15 districts, and the Council of Regions, with 45 members who are chosen by the regional assemblies. The parliament meets in the former grain exchange of the capital, which was converted for the purpose in 1922 after the old building had been destroyed by fire.

Laws may be proposed by the government, by any ten deputies, or by a petition signed by at least 50,000 citizens. A bill that has been passed by the House is sent to the Council, which may return it once within thirty days; if the House passes it again by an absolute majority, it is presented to the president for signature. Taxes and the budget are decided by the House alone. In the election of 2018, the Liberal Union won 61 seats, the Social Democrats 54, the Farmers' Party 29, the Greens 21 and others 15. The turnout was 71.3 per cent, the highest since 1986.

= Longest common subsequence =

In computer science, a longest common subsequence of two sequences is a sequence of the greatest length that can be obtained from both of them by leaving out elements without changing the order of the rest. It differs from the longest common substring in that its elements need not be adjacent. For example, the sequences ABCBDAB and BDCABA have several of length four, among them BCBA and BDAB. The problem is the basis of programs which compare files, and is used in biology to compare the sequences of proteins.

For two sequences of lengths m and n it can be solved by dynamic programming in a time proportional to the product mn. Let c(i, j) be the length for the first i elements of one and the first j elements of the other. If the elements at i and j are equal, then c(i, j) = c(i − 1, j − 1) + 1; otherwise c(i, j) is the larger of c(i − 1, j) and c(i, j − 1). If either of the indices is zero, so is the length. The sequence itself is found by following the choices back from c(m, n). With the method of Hirschberg, published in 1975, the memory can be reduced to that of a single row, while the time is at most doubled. For any number of sequences, however, the problem is NP-hard.

= Old Weir Bridge, Tolmin =

The Old Weir Bridge is a road bridge of five arches over the river Sava in the town of Tolmin Vale. It was built in 1597 by the mason Pietro Canale, at the expense of the salt merchants' guild, to replace a wooden bridge which had been carried away by ice. The central arch has a span of 22.5 metres, which was the widest in the province until 1834. A small chapel stood on the second pier until it was struck by lightning in 1702; its bell is now in the town museum.

In the winter of 1944 the two northern arches were blown up by retreating troops. They were rebuilt in 1948 with stone from the same quarry, but with a core of reinforced concrete. Since the opening of the new bridge in 1979, only pedestrians and bicycles have been allowed to cross. In a survey carried out in 2015, engineers found that the piers had sunk by as much as 14 centimetres on the upstream side, and the foundations were strengthened with 96 steel piles at a cost of 3.1 million euros.

= Wilhelm Aster (composer) =

Wilhelm Aster (2 September 1811 – 30 May 1874) was a composer, conductor and organist. The son of a baker, he received his first lessons from the village schoolmaster and sang in the cathedral choir from the age of eight. In 1829 he won a prize which allowed him to study for two years in Leipzig, where he became a friend of several younger musicians and heard the last quartets of Beethoven, then hardly known. He was appointed organist at St. Michael's in 1836 and music director of the city in 1845, a post that he held until his death.

Aster wrote three symphonies, an opera (The Ferryman, 1852), two masses and more than a hundred and fifty songs. The opera was a failure at its first performance: the mechanism which was to show the flood in the third act caught fire, and the theatre had to be cleared. It was not given again until 1911. His Second Symphony in D minor (1849) was long the only work of his that was played regularly. In it the slow movement is placed at the end, so that the music grows quieter for the last twelve minutes; an early critic complained that "the audience did not know when to applaud, and so went home". His songs have been recorded in full since 1998.

= Selby Island Railway =

The Selby Island Railway was a narrow gauge railway, 11.4 miles in length, which connected the harbour of Port Lorne with the slate quarries at Ben Achray. The line was authorised by an Act of Parliament in 1872 and opened to goods traffic on 1 July 1875; passengers were carried from May of the next year. It had a gauge of 2 feet 6 inches and a ruling gradient of 1 in 41. There were stations at Port Lorne, Mill of Garth, Loch Dhu and Quarry Road, and a halt at the gates of Achray House which was used only by the owner and his guests.

The company owned four locomotives, of which the first two, Curlew and Plover, were built in Leeds, and 112 slate wagons. In its best year, 1898, it carried 38,200 tons of slate and 21,650 passengers. Traffic declined after the First World War, as roofs were increasingly covered with tiles, and the quarries closed in 1931. The last train ran on 3 October of that year. Curlew was sold to a sugar plantation in Fiji and was brought back in 1996; it has been restored and stands in the former goods shed, which is now a café. Much of the route can be followed on foot.

= Cell membrane =

The cell membrane is a thin layer that separates the inside of a cell from its surroundings. It consists mainly of two sheets of lipid molecules whose water-loving heads face outwards and whose tails face each other, and it is only about 7 to 10 nanometres thick. Proteins are embedded in it, some of which pass through the whole layer. The membrane is not rigid: lipids and many of the proteins move about within it, a view known as the fluid mosaic model, which was proposed in 1972.

Small molecules without charge, such as oxygen and carbon dioxide, pass through the layer freely, while ions and sugars need a protein to let them through. A channel lets them flow from where there are many to where there are few; a pump moves them in the opposite direction and needs energy for it. The sodium-potassium pump, for instance, carries three sodium ions out of the cell and two potassium ions in for each molecule of ATP. In this way a difference in voltage of about 70 millivolts is kept up across the membranes of nerve cells. Animal cells contain cholesterol in their membranes, which makes them less permeable and keeps them from becoming stiff in the cold; plants, fungi and most bacteria have a strong wall outside the membrane as well.

= 2006 Northern Isles Open =

The 2006 Northern Isles Open was a professional snooker tournament that took place between 7 and 15 October 2006 at the Assembly Rooms in Kirkholm. It was the third ranking event of the season. Daniel Okoro, who was the defending champion, lost 5–3 in the second round to the qualifier Lee Pritchard. In the final, Marcus Wray defeated Stephen Lindqvist 9–6 to win the first title of his career. The highest break of the tournament was 141, made by Lindqvist in the tenth frame of his semi-final against Ian Doyle.

Wray had led 5–3 after the first session, but lost three of the next four frames. In the fourteenth frame, with the score at 7–6, he needed two snookers with only the colours on the table, got both of them, and won on the black. "I had given up on that frame," he said afterwards. "I was only trying to make him stay in his chair a little longer." The prize for the winner was 50,000 pounds; the total prize fund was 320,000 pounds.

= Kingdom of Arvel =

The Kingdom of Arvel was a state in the upper valley of the Ister from about 740 to 1018. Little is known of its origin. According to a chronicle written four centuries later, it was founded by a horse trader named Bor, who married the daughter of the last governor; modern historians regard this as a legend, and assume that several small tribes were united by the need to defend the salt road against raids from the east. The earliest king who is mentioned in a source of his own time is Radmir I, who sent envoys to the emperor in 782 and was baptised, with thirty of his followers, in the following spring.

The kingdom reached its greatest extent under Radmir III (died 931), when it included eleven fortified towns and controlled both of the passes over the mountains. He issued silver coins, of which about nine hundred have been found, most of them in a single pot which was dug up by a farmer in 1887. After his death the kingdom was divided between his sons, and the eastern part was lost by 960. The last king, Vok, was killed in battle in 1018, and his lands became a province of the neighbouring duchy. The law code of Arvel, which survives in a copy of the 13th century, is notable for its detailed rules about bees: a swarm belonged to the owner of the tree in which it settled, unless the pursuer could throw his hat over it.

= Cobalt Street =

Cobalt Street is a 1988 platform video game developed and published by Lantern Software for home computers. The player controls a lamplighter named Pip, who must light every lamp in a town of sixty streets before the night is over, while avoiding moths, cats and a policeman. Lamps can be lit in any order, but go out again after some time if the wind blows, and each street has a wind of its own. The game was written by two brothers, Neil and Graham Farley, who were 17 and 19 years old, in five months. It sold about 90,000 copies, and was followed by Cobalt Street II: The Gasworks in 1990.

Reviewers praised the graphics and the music, but thought it too difficult. Crash Point magazine gave the game 87%, and wrote that it was "as charming as it is cruel". In an interview in 2013, Graham Farley said that the last street could not be completed at all in the first version, because of an error which nobody noticed for three years: no player had ever got so far.)text";
}
// clang-format on

}  // namespace leq
