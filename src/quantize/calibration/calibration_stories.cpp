// Stories that the storyteller of examples/ told, for calibration: what small models write.
#include "quantize/calibration/calibration_text.h"

namespace leq {

// clang-format off
std::string_view calibration_stories() {
  return R"text(Once upon a time there was a boy who wanted to go on a walk. He was always so excited to see all the animals in the forest. He decided to take a walk with his family.

One day, the boy was swinging on the ground. He was so excited. He decided to go for a walk to the swings.

He walked around the park and saw a little boy who smiled. The boy was three but he was very happy.

The boy never saw him again. He was no longer lonely, he had a friend to him. He was so proud of himself for being a kind boy. He kept exploring and feeling new.

There was once a poor miller who had a daughter who had nothing to eat but a girl who had no bread, and she was much too tired to go to her mother's house, and then she fell into a pot, and then she lay down under a tree and cried, "Good-morning, sister." The mother said, "I will go into the bad water." The little girl went home, and when she came to the girl's house, she saw a little girl who was standing in the courtyard, and she thought, "With little door, I must go in and fetch some water." Then she was about to fetch water in the pot, and in her turn a beautiful maiden, and then she took up the apple, and laid it in her arms and played in it with it. Then she walked over the whole world, and when she was tired, she said to the girl, "Dear child, if you can give me a glass of water; I shall have some water in my hands." She put the little girl into the pot, and went back to her father and mother, and she wanted to play with him.

Soon after she came to the woman's house, and asked the little girl what she wanted? The little girl said, "Dear father, it is too cold, let her alone with the water." Then she put her hands on the patient's finger and went to sleep.

The old fox looked at the house very carefully. Soon enough to try other things. He was determined to walk by which he could get enough of.

The next day, the fox's best friend came to visit the old fox. They asked the fox, "What is that, you sun?" The fox replied, "The fox is feeling very sleepy. I am going to help you."

The fox replied, "You silly creature! I want to be my own and I will give you no longer!" The fox smiled and said, "Thanks for helping others, I will take back me and grant you!" The fox agreed and the fox went on all day, the fox would beg for all the pretty things, while the fox's tail went back to the door and said, "Not so much, not much."

Tom and his sister went to the river. They brought out a big orange car that was blue and yellow and had many colors. It was shiny and smooth and had a smooth sponge. The spike made a face, a long, red, green, and yellow. Tom feels happy and helpful.

But then, a spike can be made. It is shiny and pretty. It can make a noise. It smells like white. It is white and nice. She says, "It is like a bandage. I have a stamp for you."

Tom smiles. He says, "I am sorry, too. I am sorry, I have a new jar. It is my favorite doll. You have many dolls. I found them."

Sara and Tom feel sorry. They tell Tom to the man, "Sara and Tom, help us play. We will not find another boy again. He is very kind and nice. He is new friend."

They share their toys and play with them again. They eat their cookies and They play with them in the air and the also. They have a good mind. They are happy.

In the morning the king said to his three sons, "Hurray, there is no one to give, and I cannot give him any bread for all that I have with him. I will take him to the end of his kingdom, and he will not be able to help me." The other agreed that he had not yet time to go with the other two girls to the palace, and to hear what was to be done. And when the king had a hundred yards to his horse and begged him to go with him, he said that he would go and fetch the horse, and that he might have the prince's daughter for it. So he went away and said, "Where is the horse?"

The prince, however, came to the house of his mother, and said, "Get up, and tell me, that I may go and fetch it, and if you are to be my wife, I will help you." The Prince thought, "If thou canst have it, I will take the horse and kill you." Then he went into the carriage and gave the horse a piece of to be put into the water, and was just going to work. When the prince came home from his kingdom, he would not have been there any longer, but to make sure that he would be better, and he was determined to take the horse. The prince's daughter asked him, "What dost thou want?" The horse answered, "I have not reason to do so; I am the horse of a fellow who will not be there."

Far away in the forest there lived a man whose wife and his wife were together. When he got to the manlay the man asked him if he was to be his wife. "I have no money," he replied; "I am going to buy you a pair of shoes." The wife said, "I have plenty of gold, and a rich shirt belongs, and a silver beard." Then the man said, "Listen, how can I get the money?" The coal answered, "I have a sword that my brother is not well, but he can carry me to the man." - "Where is the money?" said the man. "To the town," answered the man, "and what have you in the bag?" - "I can make no money," replied the man. The man gave the man a small piece of gold and washing clothes, and they were not made of; he had a large golden crown on the table, and a golden crown made of silver and rub. Then said the man, "First, that is the money!" and with that he struck the mantle of gold, and then he went up to the King and said, "We have the gold with which you were going to buy all that you have;" but the man answered, "I have not brought you, but I have no gold in my pocket." Then said the man, "I have just given my gold, for I have had nothing better than you, and I have never been so long as you were, I have had nothing in the pocket, and that is my name."

The wind blew all night, and in the morning they came to a clearing. The wind was spreading in the sky, and the birds sang, and the birds singing in the sky. The sailors sang, and the birds sang, and the wind sang.

"This is a beautiful country," said the sea. "The wind is far from the shore. Its sweet land and sun, and it floats in the clear air, and the winds and the waves have flown away, so that the wind shines above the waves.

"The sea is not far away, but the sea is always red and blue, and the waves are red and blue. The wind blows through the water, and the wind shines the waves above the clouds, and the clouds have blown the water. The water is dry and cold. No, it is still cold. Be still and still. Take care not to fly away.

The boat is not so cold. It is cold and rainy; it still looks like a sea, like a swing. The wind is shiny and tingy. It can make the clouds look like the wind.

The boat does not go near the shore. It is the wind. It is the wind's own. It falls to the shore.

Lily and Ben are sad. They say, "It is not a star in my heart. It can make it better. Do you want to try it?"

Lily and Ben say, "Yes, we can. But we have to be okay, we can do yoga.

Lily had a small red boat. She wanted to go on it to see the clouds. She asked her mom, "Lily, can we go on the beach?" Her mom said, "No, we can stay in the lake with it. But be careful and still, don't make a boat with it."

Lily thought about the plan and petted the boat. She thought it was going on more and more. She said, "Maybe we can go."

Lily was sad that she did not know. She wanted to know more about the land, but she knew she could play. She got a towel and started to pull the boat away.

Lily counted to ten and put the boat in the bottom to the boat. She pulled hard and tumbled.

Her mom came into the boat and said, "Oh no, let's go to the boat! I wase! Its boat!"

Lily was sad and scared. She did not like the boat, but she wanted to help. She ran to their mom and hugged her. Her mom smiled and said, "That was very good, Lily. We can go home and eat it. We can still be okay."

Lily was very sad and angry. She said, "I'm sorry, mom. I'm sorry, mom. I was naughty and you couldn't play with your fish. Now look at the fish. He is clever. That's whenground, you can't have them."

A sailor came home after seven years, and when he went to his Mother's house, where he was sitting in a quiet corner, and, looking round about him, he thought he would have to go home.

The next morning the Stag went to the kitchen and asked the Wolf to carry the Wolf home, but the Wolf said he would and said, "No; I know it, but it is too late, it will be bad now to get it." The Wolf agreed that the Wolf should go with him, but the Wolf took the Wolf and carried it away.

When the snow had melted, the little bear gave a scream, and said to him, "Back, little tree, there is a little fowl in the woods. I can't walk slowly, but I can't see my hind legs."

The little bear was amazed, but his little son replied, "I can't see the pretty little birds."

The bear said, "I know the wind, which is so small, and can fly away like you. I'm so glad to see you."

The bear was very happy and thanked the little bear for helping him fix his glove. From that day on, the bear was known as the sun was coming, and he always remembered the night and the birds flying around him up.

The captain stood on the deck and stood in the market-place. His watchman was so busy with his paws, that he was so excited and ran back to his mates.

Then he told the judge why the man had taken prisoners for his visit. He told them that they would take care of the people and say that the man was unable to get his money out of the tax.

The judge's business was all the time in the business, and the man was very anxious. He was not able to go to the party when the judge came back. So now he had to go back to his own room and carry out his money, and then went to the bailiff's house and knocked at the door of the staircase.

The gentleman opened the door and stood with his grand-vizir.

'I will take the money to the man,' he said, and he went on.

The man took the box from the stairs and showed the man who had been in the office. The man's man was to stay at home with the man who was sitting by the window and reading a page in a big book.

'I am very sorry,' said the gentleman, and the man took a ring of wine, and went out with the man, and then he went out.

The man was about to talk to the stranger, and he asked the man what he had told him.

'I know,' said the man. 'I am going to get married, and I have no money to buy another.

"Where are you going?" asked the man, in a low, soft, stump-hall, who was sitting on a lane in the middle of a large hall; and this is the man whom I have never seen. In the garden is the walls of the castle, and the walls of the castle were of nohin, and on the wall was a castle where the door was wide open, and the walls were so large that the roof was as red and blue and silver, and on the roof sat the wife, and she was so pretty that she could not see how the King was. The King was already on the steps of the castle, and the King of the Golden Mountain looked about him, and asked him what he wanted. "I am very sorry," said the man, "he has been here with his wife." "Yes," said the King, "I am not a poor man, and my wife is my own child. I have a little child, and a long time ago I have gone out into the forest to seek my fortune." - "Wait," said the man, "I will go and seek the castle." The youth went into the hall and found the two old woman who were standing in the road. They were now sitting at table, and the old woman was already asleep, and she was sitting on a branch in the midst of a great mushroom. The young man was so frightened that he began to cry, "If I did not kill you, I would have to do you any harm.")text";
}
// clang-format on

}  // namespace leq
